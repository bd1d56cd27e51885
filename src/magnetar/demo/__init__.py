"""The guided tour: a year of real departures through broker, Spark and official clients."""
