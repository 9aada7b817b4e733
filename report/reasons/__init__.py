"""Why a collective exists: from its equation back to what the user wrote."""
