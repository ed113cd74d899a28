"""What each provider takes: one module a provider, in the provider's real format and within its limits. No I/O.

A module's `ASSEMBLER` is found by `clientmgr/sending/providers.py`.
"""
