"""What each verb shows: results of the domain turned into tables, notes and the JSON payload."""
