"""The operations as JSON over HTTP, and the document that describes them."""
