"""`cautious/TerrainsMiniGrid-v0`: the terrains as a MiniGrid environment; needs the package `minigrid`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from cautious.errors import InvalidInputError, MissingPackageError
from cautious_paper.worlds.envs.terrains_env import COLOURS, TARGET, UNSEEN_COLOURS
from cautious_paper.worlds.terrains import ACTIONS, GOAL, SIZE, cell_number, terrain_world

try:
    from minigrid.core.constants import COLOR_NAMES, COLOR_TO_IDX, OBJECT_TO_IDX
    from minigrid.core.grid import Grid
    from minigrid.core.mission import MissionSpace
    from minigrid.core.world_object import WorldObj
    from minigrid.minigrid_env import MiniGridEnv
    from minigrid.utils.rendering import fill_coords, point_in_rect
except ModuleNotFoundError as error:
    raise MissingPackageError(
        "cautious/TerrainsMiniGrid-v0 needs MiniGrid, which is not installed; install it with: pip install 'cautious[minigrid]'"
    ) from error


class Ground(WorldObj):
    """A tile of one kind of ground, which one may walk on; MiniGrid has six colours, so its third number says the kind."""

    def __init__(self, kind: int, is_depot: bool) -> None:
        """The depot is a goal, everything else is floor."""
        super().__init__("goal" if is_depot else "floor", COLOR_NAMES[kind % len(COLOR_NAMES)])
        self.kind = kind

    def can_overlap(self) -> bool:
        """Always."""
        return True

    def encode(self) -> tuple[int, int, int]:
        """What an observation shows of it: type, colour, kind."""
        return OBJECT_TO_IDX[self.type], COLOR_TO_IDX[self.color], self.kind

    def render(self, r: np.ndarray) -> np.ndarray:
        """The colours of `cautious/Terrains-v0`, with a yellow middle for the depot."""
        palette = (*COLOURS, *UNSEEN_COLOURS)
        fill_coords(r, point_in_rect(0.03, 1, 0.03, 1), palette[self.kind % len(palette)])
        if self.type == "goal":
            fill_coords(r, point_in_rect(0.25, 0.75, 0.25, 0.75), TARGET)
        return r


class TerrainsMiniGridEnv(MiniGridEnv):
    """`cautious/Terrains-v0` with MiniGrid's grid, observations and pictures.

    ## Description
    The same field, the same parcels and the same rules, so that the exact twin is the same too: one seed and one sequence of
    actions give the same cells and rewards in both. What is MiniGrid's: the 11 x 11 grid with a wall around the field, what is
    observed, how it is drawn, and all wrappers of that package.

    ## Action Space
    `Discrete(5)`: 0 up, 1 right, 2 down, 3 left, 4 stay; not MiniGrid's turns. The carrier always faces right: walking needs no
    turning, and the cell alone is the state.

    ## Observation Space
    MiniGrid's dictionary: `image`, a window of 7 x 7 cells before the carrier, `direction` and `mission`. Each cell is type,
    colour and kind of ground. The window does not say where one is. For an observation that determines the state, wrap the
    environment in MiniGrid's `FullyObsWrapper`, and in `ImgObsWrapper` for the image alone.

    ## Starting State, Reward, Information
    As of `cautious/Terrains-v0`.

    ## Episode End
    Never; truncated after `max_steps`.

    ## Arguments
    `layout` (0), `num_unseen` (6), `slip` (0.1): as of `cautious/Terrains-v0`. `max_steps` (100). `render_mode` (None):
    `"human"` or `"rgb_array"`.

    ## Version History
    v0: first version.
    """

    def __init__(
        self,
        layout: int = 0,
        num_unseen: int = 6,
        slip: float = 0.1,
        max_steps: int = 100,
        render_mode: str | None = None,
    ) -> None:
        """Draw the map."""
        self.world = terrain_world(layout, num_unseen, slip)
        super().__init__(
            MissionSpace(mission_func=lambda: "carry parcels to the depot"),
            grid_size=SIZE + 2,
            max_steps=max_steps,
            see_through_walls=True,
            render_mode=render_mode,
            highlight=False,
        )
        self.action_space = spaces.Discrete(len(ACTIONS))

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for cell, kind in enumerate(self.world.kinds):
            row, column = divmod(cell, SIZE)
            self.grid.set(column + 1, row + 1, Ground(int(kind), cell == cell_number(GOAL)))
        self.agent_dir = 0
        self.go_to(int(self.world.start(1, self.np_random)[0]))

    def go_to(self, cell: int) -> None:
        """Put the carrier into a cell, by its number in the exact twin."""
        row, column = divmod(cell, SIZE)
        self.cell, self.agent_pos = cell, (column + 1, row + 1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step by the rules of the field."""
        if not self.action_space.contains(action):
            names = ", ".join(f"{number} {name}" for number, name in enumerate(ACTIONS))
            raise InvalidInputError(f"action={action!r} is not known; choose one of {names}.")
        cells, happened = self.world.step(np.array([self.cell]), np.array([action]), self.np_random)
        self.go_to(int(cells[0]))
        self.step_count += 1
        if self.render_mode == "human":
            self.render()
        reward = float(happened.pop("reward")[0])
        info = {name: value[0].item() for name, value in happened.items()}
        return self.gen_obs(), reward, False, self.step_count >= self.max_steps, info
