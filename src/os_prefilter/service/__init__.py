"""What a running service adds to the pipeline: options, facts of the deployment, gates, metrics, history, reasons."""
