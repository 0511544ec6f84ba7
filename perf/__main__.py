"""`python -m perf`."""

from perf.imports import prefer_installed

prefer_installed()

from perf.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
