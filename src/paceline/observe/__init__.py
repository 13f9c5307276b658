"""What operators see of a running server. Reads; decides nothing."""
