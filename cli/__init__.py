"""The command `moss-tts-serve`: speak, keep voices, start a server, verify one."""
