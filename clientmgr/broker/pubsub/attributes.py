"""How a message of ours travels in Pub/Sub's attributes: the contact or device it is about has no field of its own."""

KEY_ATTRIBUTE = "cm-key"
