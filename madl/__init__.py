"""The library behind the logbook: formats, compression, training, measurement, verdicts, pages."""
