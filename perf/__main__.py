"""`python -m perf`."""

from perf.cli import main

if __name__ == "__main__":
    main()
