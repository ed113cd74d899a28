"""What all daemons share: the loop, the settling of failures, the work tenant by tenant."""
