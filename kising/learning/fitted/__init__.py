"""What a fit can do: score held-out recordings, forecast, list its edges, describe itself, be saved."""
