"""The tutorial: every step as a reader takes it, with what the reader sees."""

import shlex
import sys
from pathlib import Path

from tests.support.documents import TUTORIAL, blocks
from tests.support.ports import release_port, reserve_port
from tests.support.programs import Program, Programs, programs
from tests.unit.cli.running import COMMAND

SERVER = [sys.executable, "-P", "-m", "amps.server.main"]


def shell_command(tutorial: Programs, containing: str) -> list[str]:
    """A command of the tutorial, with the commands of this installation."""
    text = tutorial.text(containing, "sh").strip().replace("sleep 1", "sleep 0.1")
    text = text.replace(".venv/bin/ampServer", shlex.join(SERVER)).replace(".venv/bin/amps", shlex.join(COMMAND))
    return ["bash", "-c", text]


def seen(*words: str) -> str:
    """The block of the tutorial that shows an output."""
    (found,) = (text for text in blocks(TUTORIAL, "text") if all(word in text for word in words))
    return found


def done(program: Program) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in program.lines("done:")]


def test_the_tutorial_step_by_step(tmp_path: Path) -> None:
    """client.md §21 45, 46, 53; queues.md §8: nothing is lost when each part is killed.

    The blocks as they are, but for ports, the installation and the time that the work takes.
    """
    first_port, second_port = reserve_port(), reserve_port()
    try:
        with programs(TUTORIAL, tmp_path, first_port) as tutorial:
            for port, replaced in (("9007", first_port), ("9008", second_port)):
                tutorial.replaced |= {
                    f"localhost:{port}": f"127.0.0.1:{replaced}",
                    f"PORT={port}": f"PORT={replaced}",
                }
            # The work takes less time here, except where the program is killed meanwhile.
            tutorial.replaced |= {"sleep(0.05)": "sleep(0.01)", '"seconds": 4': '"seconds": 0.1'}
            take_all_steps(tutorial)
    finally:
        release_port(first_port)
        release_port(second_port)


def take_all_steps(tutorial: Programs) -> None:
    (tutorial.directory / "config.xml").write_text(tutorial.text("<AMPSConfig>", "xml"))
    first = tutorial.start_command(["bash", "-c", "exec " + shell_command(tutorial, "PORT=9007")[2]])
    first.until(seen("initialization").strip())

    assert tutorial.run("range(1, 6)") == seen("5 orders")
    reader = tutorial.start('"reader"')
    assert "\n".join(reader.until_lines(5)) + "\n" == seen('{"id":5}')
    reader.kill()

    tutorial.replaced["sleep(0.5)"] = "sleep(0.01 if message.json()['id'] < 3 else 600)"
    consumer = tutorial.start("import Client, FileBookmarkStore")
    consumer.until_lines(2, "done:")
    consumer.kill()
    assert done(consumer) == [1, 2]
    tutorial.replaced["sleep(0.5)"] = "sleep(0.01)"
    consumer = tutorial.start("import Client, FileBookmarkStore")
    consumer.until("done: 5\n")
    consumer.kill()
    # Killed between the work and `discard`, the first run leaves one order that comes again.
    assert done(consumer) in ([3, 4, 5], [2, 3, 4, 5])

    standby = tutorial.start_command(shell_command(tutorial, "PORT=9008"))
    standby.until(seen("another server").strip())
    consumer = tutorial.start("import FileBookmarkStore, HAClient")
    feed = tutorial.start("range(6, 206)")
    consumer.until_lines(20, "done:")
    first.kill()
    consumer.until(tutorial.adapted(seen("lost the connection").strip()))
    standby.until(seen("initialization").strip())
    assert feed.finished().endswith(seen("200 orders"))
    consumer.until(seen("done: 204"))
    # Here, too: an order whose work was done is not discarded yet when the program is killed.
    assert done(consumer) in (list(range(6, 206)), list(range(5, 206)))
    consumer.kill()

    tutorial.replaced['sleep(job["seconds"])'] = 'sleep(6000 * job["seconds"])'
    worker = tutorial.start("worker.run()")
    tutorial.run('"shop-jobs"')
    worker.until("begins: 3\n")
    worker.kill()
    shown = seen("begins: 1").splitlines()
    assert set(shown[1:-1]) <= set(worker.output.splitlines())
    assert "done: 3" not in worker.output
    del tutorial.replaced['sleep(job["seconds"])']
    worker = tutorial.start("worker.run()")
    worker.until(*seen("begins: 3\ndone: 3").splitlines(), ", the last")
    letters = tutorial.start_command(shell_command(tutorial, "jobs-failed"))
    assert letters.finished() in blocks(TUTORIAL, "text")
    worker.end()
    standby.close()


def test_every_program_of_the_tutorial_is_run() -> None:
    assert len(blocks(TUTORIAL)) == 7
    assert len(blocks(TUTORIAL, "text")) == 12
    assert len(blocks(TUTORIAL, "sh")) == 3
