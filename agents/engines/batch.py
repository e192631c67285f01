"""Token sequences to padded model inputs, and their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from codev_agents.rollout.families import family_of
from codev_agents.rollout.tokens import PixelBlock


def collate(
    ids: Sequence[Sequence[int]],
    images: Sequence[Sequence[PixelBlock]],
    pad_id: int,
    image_id: int,
    left: bool = False,
    once: bool = False,
) -> dict[str, torch.Tensor]:
    """Pad sequences and gather their images.

    Args:
        ids: Token ids of each sequence.
        images: Images of each sequence, in order.
        pad_id: Id to pad with.
        image_id: Id of an image token.
        left: Pad on the left (generation) instead of the right (training).
        once: Give the pixels of a `PixelBlock` that occurs several times once, for `vision.looking_once`.

    Returns:
        `input_ids`, `attention_mask` and `mm_token_type_ids`, each `[batch, length]`, and where there are images
        `pixel_values` `[patches, patch_dim]` and `image_grid_thw` `[images, 3]`, or `pixel_values` of tiles alone. With
        `once`, where images occur several times, `image_places` `[images]`: the number of each among those given.
    """
    length = max(len(s) for s in ids)
    input_ids = torch.full((len(ids), length), pad_id)
    mask = torch.zeros((len(ids), length), dtype=torch.long)
    for row, sequence in enumerate(ids):
        part = slice(length - len(sequence), length) if left else slice(0, len(sequence))
        input_ids[row, part] = torch.tensor(sequence)
        mask[row, part] = 1
    batch = {"input_ids": input_ids, "attention_mask": mask, "mm_token_type_ids": (input_ids == image_id).int() * mask}
    blocks = [block for row in images for block in row]
    if blocks:
        given = list(dict.fromkeys(blocks)) if once else blocks
        batch["pixel_values"] = torch.cat([block.values for block in given])
        if len(given) < len(blocks):
            places = {block: place for place, block in enumerate(given)}
            batch["image_places"] = torch.tensor([places[block] for block in blocks])
    if grids := [block.grid for block in blocks if block.grid]:
        batch["image_grid_thw"] = torch.tensor(grids)
    return batch


def smallest_image(config: Any) -> dict[str, torch.Tensor]:
    """Return inputs of a model with this configuration for one blank image of the fewest pixels it takes."""
    vision = config.vision_config
    if family_of(config).tile_tokens:
        return {"pixel_values": torch.zeros(1, vision.num_channels, *vision.image_size)}
    side = vision.spatial_merge_size
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return {"pixel_values": torch.zeros(side**2, width), "image_grid_thw": torch.tensor([[1, side, side]])}


def rope_positions(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute position ids of a padded batch.

    Args:
        model: A model with positions in time, height and width (Qwen-VL), or one whose positions count tokens.
        batch: From `collate`, `[batch, length]`.

    Returns:
        Positions `[3, batch, length]` (time, height, width; all the same for text), or `[batch, length]` where they
        count tokens, and, `[batch, 1]`, what to add to a row's number of tokens to get the position of its next token.
    """
    rope = _rope(model)
    if rope is not None and "image_grid_thw" in batch:
        return rope(
            input_ids=batch["input_ids"],
            mm_token_type_ids=batch["mm_token_type_ids"],
            image_grid_thw=batch["image_grid_thw"],
            attention_mask=batch["attention_mask"],
        )
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return on_axes(model, positions), torch.zeros_like(positions[:, :1])


def on_axes(model: Any, positions: torch.Tensor) -> torch.Tensor:
    """Return the positions of text, `[batch, length]`, in the form of the model: see `rope_positions`."""
    return positions if _rope(model) is None else positions[None].expand(3, -1, -1)


def _rope(model: Any) -> Any:
    return getattr(getattr(model, "model", None), "get_rope_index", None)


def bucket(lengths: Sequence[int], most: int, slack: float = 1.25) -> list[list[int]]:
    """Split rows into batches of similar lengths.

    Args:
        lengths: Length of each row.
        most: Most rows per batch.
        slack: Longest row of a batch relative to its shortest.

    Returns:
        Row numbers of each batch; each row is in exactly one.
    """
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda r: lengths[r]):
        if not batches or len(batches[-1]) == most or lengths[row] > slack * lengths[batches[-1][0]]:
            batches.append([])
        batches[-1].append(row)
    return batches


def to_device(batch: dict[str, torch.Tensor], device: Any) -> dict[str, torch.Tensor]:
    """Move a batch to a device."""
    return {name: value.to(device) for name, value in batch.items()}
