"""The record of an episode that everything downstream reads; on disk `trajectories.jsonl` plus `images/*.png`."""

from codev_env.trajectory.files import TrajectoryWriter, read_trajectories, write_trajectories
from codev_env.trajectory.images import IMAGE_DIR, ImageFiles, same_images
from codev_env.trajectory.record import Trajectory
from codev_env.trajectory.rows import FILE_NAME, SCHEMA

__all__ = [
    "FILE_NAME",
    "IMAGE_DIR",
    "SCHEMA",
    "ImageFiles",
    "Trajectory",
    "TrajectoryWriter",
    "read_trajectories",
    "same_images",
    "write_trajectories",
]
