"""How a command can fail: an exit status, and a message a person can act on."""

from pipeline.errors import SpeechError

FINE, FAILED, USAGE, NO_CONNECTION, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


class CommandFailed(SpeechError):
    """The server refused or broke off, or the audio cannot be read, written or played."""

    exit_status = FAILED


class UsageError(CommandFailed):
    """What was asked for cannot be done, whatever the server says."""

    exit_status = USAGE


class CannotConnect(CommandFailed):
    """Nothing answers at the server's address."""

    exit_status = NO_CONNECTION
