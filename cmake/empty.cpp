// Stands in for a library that has no source yet.
