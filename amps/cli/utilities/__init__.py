"""The utilities of the server: commands of their own that read its files and need no running server.

Each module is one command and thin: options, texts, exit status. What the files hold is read in `amps.journal`. Exit
status: 0 done, 1 a file cannot be read or is damaged, or nothing was found, 2 wrong usage (`amps-grep`: as grep).
"""
