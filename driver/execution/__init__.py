"""From a traced program to results: partition, execution, transfers, several processes."""
