"""Real MLA decode on the local device, against the prediction."""
