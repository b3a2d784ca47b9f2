"""Kills, power cuts, faults and damage: nothing acknowledged is lost, nothing partial is seen, damage is named."""
