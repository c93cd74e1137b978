"""kvplan's own MLA decode kernel, in parts: device code, tiles and splits, cache views, launch, offline compilation."""
