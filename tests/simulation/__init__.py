"""Deterministic simulation of core and journal: real logic, simulated disk, clock, transports and deaths, one seed.

python -m tests.simulation --seed N [--steps M] [--trace]     replay one seed
python -m tests.simulation --forever                          seeds without end, each printed when it fails
python -m tests.simulation --queues …                         the same with message queues and their consumers
python -m tests.simulation --groups [--topology NAME] …       groups of instances that replicate (group_world)
python -m tests.simulation --group-model [--queues] …         the specification of such groups as a model (group_plans)
"""
