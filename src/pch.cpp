// Exists so that the precompiled header belongs to a target (pch.h).
