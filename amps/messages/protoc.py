"""Compiling .proto files: finding the compiler, telling it where files are, and what it says of faults.

The compiler is the original one, as a program. It comes with the extra `protobuf` of this package, or from the system.
What it makes of the files, a FileDescriptorSet, is read by descriptors.py.
"""

import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

COMPILER: Final = "protoc"
COMPILE_SECONDS_MAX: Final = 60


def compiled(proto_paths: Iterable[tuple[str, Path]], proto_file: str) -> bytes:
    """The file and all that it imports, as a FileDescriptorSet. proto_paths: alias and directory.

    ValueError: there is no compiler, or it refuses the file.
    """
    command = [_compiler()]
    for alias, directory in proto_paths:
        # The compiler divides at colons, and at the first `=` what a file is called from where it is.
        if ":" in f"{alias}{directory}" or "=" in alias:
            raise ValueError(
                f"the directory {directory} with alias {alias!r}: neither takes a colon, nor the alias an equals sign"
            )
        if not directory.is_dir():
            raise ValueError(f"{directory} is no directory: ProtoPath takes one, with an alias or without")
        command.append(f"--proto_path={alias}={directory}")
    if proto_file.startswith(("-", "@")):
        raise ValueError(f"{proto_file}: the name of a ProtoFile begins neither with - nor with @")
    command += ["--descriptor_set_out=/dev/stdout", "--include_imports", proto_file]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=COMPILE_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{proto_file} was not compiled: {error}") from error
    if done.returncode or not done.stdout:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise ValueError(
            f"{proto_file} cannot be compiled: {said or f'{COMPILER} ended with {done.returncode}'}"
        )
    return done.stdout


def _compiler() -> str:
    # Beside this interpreter first: a server that is started by its full path has no environment activated.
    found = shutil.which(COMPILER, path=sysconfig.get_path("scripts")) or shutil.which(COMPILER)
    if found is None:
        raise ValueError(
            f"message types of the module protobuf need the compiler {COMPILER}, which is not installed: "
            f"install amps-server[protobuf], or the system's package (protobuf-compiler)"
        )
    return found
