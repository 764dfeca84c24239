"""The tables of a study file."""

from __future__ import annotations

APPLICATION = 0x57544E4C
"""``PRAGMA application_id`` of a study: WTNL."""
VERSION = 1

TABLES = """
CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    oracle TEXT NOT NULL,
    called INTEGER NOT NULL,
    proposer TEXT NOT NULL,
    reason TEXT NOT NULL,
    changes TEXT NOT NULL,
    plan TEXT NOT NULL,
    status TEXT NOT NULL,
    step_time REAL,
    peak_device REAL,
    why TEXT NOT NULL,
    provenance TEXT NOT NULL,
    seconds REAL NOT NULL,
    cost REAL NOT NULL,
    objectives TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (oracle, key)
);
"""
"""``key`` is one of the effective job: an oracle is asked about a plan once, whoever proposes it and however often.
``called`` is 0 where the screen answered. JSON columns: changes and plan (as a job file has them), provenance,
objectives. ``seconds`` of wall time, ``cost`` in accelerator-seconds, ``at`` in Unix seconds."""

NOTES = """
CREATE TABLE IF NOT EXISTS note (
    id INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    trial INTEGER,
    data TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (number, kind, text)
);
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    request TEXT NOT NULL,
    asked TEXT NOT NULL,
    response TEXT NOT NULL,
    at REAL NOT NULL,
    UNIQUE (model, request)
);
"""
"""Tables of studies that a language model took part in, added when they are first written to. ``number`` counts the
notes of a run, so that one that is repeated repeats none. ``request`` is a digest of the whole conversation up to a
response, ``asked`` what was new in it, ``response`` the answer, both as JSON."""

QUEUED = """
CREATE TABLE IF NOT EXISTS queued (
    run TEXT PRIMARY KEY,
    oracle TEXT NOT NULL,
    key TEXT NOT NULL,
    search TEXT NOT NULL,
    cluster TEXT NOT NULL,
    host TEXT NOT NULL,
    job TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    at REAL NOT NULL
);
"""
"""Jobs of a queue, added when the first is queued. ``oracle`` and ``key`` are those of the trial that the job answers,
``run`` its folder, ``job`` the id the queue gave it (empty until it has), ``tasks`` on so many nodes. ``search`` names
the search that waits for it, and is empty once the trial is there and the job is over."""
