"""The utilities of the server: separate commands that read its files and need no running server.

Each module is one command with its options, texts and exit status. `amps.journal` reads the files. Exit
status: 0 success, 1 a file cannot be read or is damaged, or nothing was found, 2 wrong usage (`amps-grep`: like grep).
"""
