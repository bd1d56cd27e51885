"""One Iceberg table per topic over the Parquet files of its history."""
