"""What a partitioned program costs and why, without hardware: figures, models, reasons, advice."""
