"""Pictures of driving states: three rows, four lanes and a speedometer, as in the paper's figure."""

from __future__ import annotations

import numpy as np

from cautious_paper.worlds.driving_rules import CAR_ROW, DITCHES, NUM_COLUMNS, NUM_ROWS, DrivingState

ROAD, DITCH, CAR, OBSTACLE, SPEED, DARK = (
    (112, 112, 112),
    (94, 74, 50),
    (0, 200, 220),
    (214, 48, 49),
    (46, 184, 92),
    (24, 24, 24),
)


def cells(state: DrivingState) -> list[list[str]]:
    """What each cell shows, [3][5]: "road", "ditch", "car", "obstacle", "crash" (both), "speed" or "dark"."""
    board = [["ditch" if column in DITCHES else "road" for column in range(NUM_COLUMNS)] for _ in range(NUM_ROWS)]
    for obstacle in (state.left, state.right):
        if obstacle is not None:
            board[obstacle[0]][obstacle[1]] = "obstacle"
    board[CAR_ROW][state.column] = "crash" if board[CAR_ROW][state.column] == "obstacle" else "car"
    return [[*row, "speed" if NUM_ROWS - number <= state.speed else "dark"] for number, row in enumerate(board)]


def as_picture(state: DrivingState, size: int = 24) -> np.ndarray:
    """RGB picture [3*size, 5*size, 3]: cyan car, red obstacles, green speedometer filled from the bottom."""
    colours = {
        "road": ROAD,
        "ditch": DITCH,
        "car": CAR,
        "crash": CAR,
        "obstacle": OBSTACLE,
        "speed": SPEED,
        "dark": DARK,
    }
    board = cells(state)
    picture = np.array([[colours[cell] for cell in row] for row in board], dtype=np.uint8)
    picture = picture.repeat(size, axis=0).repeat(size, axis=1)
    picture[::size] = picture[:, ::size] = (60, 60, 60)
    for row, line in enumerate(board):
        for column, cell in enumerate(line):
            if cell == "crash":  # a car on an obstacle: red inside cyan
                edge = size // 4
                inner = (
                    slice(row * size + edge, (row + 1) * size - edge),
                    slice(column * size + edge, (column + 1) * size - edge),
                )
                picture[inner] = OBSTACLE
    return picture


def as_text(state: DrivingState) -> str:
    """Three lines: `A` the car, `#` an obstacle, `X` both, `~` ditch, `.` road, and the speed as `|`."""
    signs = {"road": ".", "ditch": "~", "car": "A", "crash": "X", "obstacle": "#", "speed": "|", "dark": " "}
    return "\n".join("".join(signs[cell] for cell in row) for row in cells(state))
