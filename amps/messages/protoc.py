"""Compiling .proto files: finding the compiler, passing it the directories, and reporting its errors.

The compiler is the original program. It is installed with the extra `protobuf` of this package, or by the system.
descriptors.py reads its output, a FileDescriptorSet.
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
    """Compile the file and its imports to a FileDescriptorSet. proto_paths: pairs of alias and directory.

    ValueError: there is no compiler, or it refuses the file.
    """
    command = [_compiler()]
    for alias, directory in proto_paths:
        # The compiler splits the option at colons, and the alias from the directory at the first `=`.
        if ":" in f"{alias}{directory}" or "=" in alias:
            raise ValueError(
                f"directory {directory} with alias {alias!r}: neither may contain a colon, nor the alias an equals sign"
            )
        if not directory.is_dir():
            raise ValueError(
                f"{directory} is not a directory: give one in ProtoPath, with or without an alias"
            )
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
    # Beside this interpreter first: a server that is started by its full path has no activated environment.
    found = shutil.which(COMPILER, path=sysconfig.get_path("scripts")) or shutil.which(COMPILER)
    if found is None:
        raise ValueError(
            f"message types of the module protobuf need the compiler {COMPILER}, which is not installed: "
            f"install amps-server[protobuf], or the system's package (protobuf-compiler)"
        )
    return found
