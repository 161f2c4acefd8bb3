package config

import "proctor/strictyaml"

// The values that other files of operators have, too.
type (
	Duration = strictyaml.Duration
	Size     = strictyaml.Size
	Count    = strictyaml.Count
)
