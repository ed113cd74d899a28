"""Files of devices that lie in a folder or a bucket, customer by customer."""
