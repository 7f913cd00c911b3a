"""`cautious/WideDriving-v0`: the driving rules on a road that no table holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from cautious_paper.worlds.driving_picture import CAR, DITCH, OBSTACLE, ROAD
from cautious_paper.worlds.driving_rules import ACTIONS
from cautious_paper.worlds.envs.batch import BatchEnv, BatchVectorEnv
from cautious_paper.worlds.envs.options import RENDER_MODES, parse_render_mode
from cautious_paper.worlds.wide_driving import HIDDEN, WideDriving

CELL = 24
"""Pixels of a cell's side."""


class WideDrivingEnv(BatchEnv):
    """Drive as far as you can on a wide road, with more obstacles than a table could list.

    ## Description
    The rules of `cautious/Driving-v0` with six lanes, a view of six rows and up to four obstacles per half: 2.3e10 states in
    the novel world. There is no exact twin; policies are judged by rollouts. In the familiar world obstacles lie in the
    ditches only; in the novel world on the lanes too, which no reward was ever given for in training.

    ## Action Space
    `Discrete(5)`: 0 accelerate, 1 brake, 2 left, 3 right, 4 cruise. A change of speed (0 to 6) acts on the next step; a
    lane change needs speed and spends one unit of it sideways; against a wall it is cruising.

    ## Observation Space
    `Box(0, 1, (117,))`: the speed one-hot (7); free pavement, ditch or wall, and obstacle in the three columns around the
    car, by rows from the farthest (3 x 18); the car's column one-hot (8); all obstacles (48). Obstacles that share a cell
    are seen as one.

    ## Starting State
    Just right of the middle (column 4), at a standstill, all obstacles hidden.

    ## Reward
    distance driven - 2 x speed if a ditch is touched - 2 x speed for each obstacle hit. (A cautious agent is not paid by it
    in the novel world: it has only its belief.)

    ## Episode End
    Never; made by `gymnasium.make`, an episode is truncated after 500 steps.

    ## Information
    After a step: `speed` (before it), `distance`, `collisions`, `collision_speed`, `offroad`.

    ## Arguments
    `novel` (True): obstacles on the lanes too. `appearance_probability` (0.1): chance that a hidden obstacle appears in each
    newly seen row, in (0, 1]. `num_lanes` (6), `num_rows` (6), `obstacles_per_half` (4): sizes; with 2, 3 and 1 they are
    those of `cautious/Driving-v0`. `render_mode` (None): `"ansi"` or `"rgb_array"`.

    ## Version History
    v0: first version.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012  (Gymnasium's convention)
    actions = ACTIONS

    def __init__(
        self,
        novel: bool = True,
        appearance_probability: float = 0.1,
        num_lanes: int = 6,
        num_rows: int = 6,
        obstacles_per_half: int = 4,
        render_mode: str | None = None,
    ) -> None:
        """Check the sizes."""
        self.world = WideDriving(novel, appearance_probability, num_lanes, num_rows, obstacles_per_half)
        self.render_mode = parse_render_mode(render_mode)
        super().__init__(self.world)

    def render(self) -> Any:
        """The current state as text ("ansi") or as a picture ("rgb_array")."""
        if self.render_mode is None:
            return None
        board = _cells(self.world, self.state)
        if self.render_mode == "ansi":
            return "\n".join("".join(row) for row in board)
        colours = {".": ROAD, "~": DITCH, "#": OBSTACLE, "A": CAR, "X": OBSTACLE}
        picture = np.array([[colours[sign] for sign in row] for row in board], dtype=np.uint8)
        return picture.repeat(CELL, axis=0).repeat(CELL, axis=1)


class WideDrivingVectorEnv(BatchVectorEnv):
    """Many cars, each on a road of its own, moved together: `gymnasium.make_vec("cautious/WideDriving-v0", num_envs=64)`."""

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        novel: bool = True,
        appearance_probability: float = 0.1,
        num_lanes: int = 6,
        num_rows: int = 6,
        obstacles_per_half: int = 4,
    ) -> None:
        """Check the sizes; arguments as of `WideDrivingEnv`."""
        self.world = WideDriving(novel, appearance_probability, num_lanes, num_rows, obstacles_per_half)
        super().__init__(self.world, num_envs, max_episode_steps)


def _cells(world: WideDriving, states: np.ndarray) -> list[list[str]]:
    """Signs of the cells of the first state: `A` the car, `#` an obstacle, `X` both, `~` ditch, `.` road."""
    column, _, rows, columns = (part[0] for part in world.parts(states))
    board = [["~", *"." * world.num_lanes, "~"] for _ in range(world.num_rows)]
    for row, place in zip(rows, columns, strict=True):
        if row != HIDDEN:
            board[row][place] = "#"
    board[-1][column] = "X" if board[-1][column] == "#" else "A"
    return board
