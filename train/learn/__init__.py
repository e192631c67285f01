"""From finished episodes to new weights: credit, loss, packing, update, optimizer, checkpoints."""
