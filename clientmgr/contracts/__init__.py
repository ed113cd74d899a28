"""What others rely on: topics and the messages they carry, decoded and checked. No I/O."""
