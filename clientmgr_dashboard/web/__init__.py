"""What pages are made with: what a page declares, its handlers, templates and forms."""
