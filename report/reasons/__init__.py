"""Why a collective exists: from its equation back to the annotation that the user wrote."""
