"""One module per verb; each exports `register(app)`, which adds its command."""
