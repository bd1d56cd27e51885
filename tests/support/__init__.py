"""What tests share: real server processes and waiting for conditions."""
