"""Remedies for failed system calls, in a few words for the end of a message."""

import errno

_LIMITS = {
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE)",
    errno.ENFILE: "raise fs.file-max",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f, LimitFSIZE)",
    errno.EAGAIN: "raise the limit of processes (ulimit -u, TasksMax)",
    errno.ENOMEM: "give the server more memory",
}
_FILES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or raise the quota",
    errno.EACCES: "let the server's user write there",
    errno.EPERM: "let the server's user write there",
    errno.EROFS: "make the file system writable",
    errno.EEXIST: "remove the file of that name, or choose another",
    errno.ESTALE: "put it back where it was, or mount its file system",
    errno.ENOTDIR: "write the path of a directory",
    errno.ENOENT: "choose a place where files can be made",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "repair the symbolic link",
}
_ADDRESSES = {
    errno.EADDRINUSE: "stop that program, or choose another address",
    errno.EADDRNOTAVAIL: "write an address that this host has",
    errno.EACCES: "choose another address, or let the server's user have it (a low port: by CAP_NET_BIND_SERVICE)",
    errno.EPERM: "choose another address, or let the server's user have it",
    errno.EAFNOSUPPORT: "write an address of a kind that this host supports",
    errno.ENOENT: "make the directory of the socket",
    errno.EEXIST: "remove it, or choose another FileName",
    errno.EPROTOTYPE: "remove it, or choose another FileName",
}


def for_files(number: int | None) -> str:
    """The remedy for a failed call on files."""
    return (
        _FILES.get(number or 0)
        or for_system(number)
        or "look for the device in the system's log and repair it"
    )


def for_addresses(number: int | None) -> str:
    """The remedy when a transport could not listen. Names that cannot be resolved have numbers below 0."""
    return _ADDRESSES.get(number or 0) or for_system(number) or "correct its InetAddr or FileName"


def for_system(number: int | None) -> str:
    """The remedy for any call; empty if there is none."""
    return _LIMITS.get(number or 0, "")
