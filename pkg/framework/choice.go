package framework

// Choice is a framework that the user can choose, while its settings are read.
type Choice interface {
	// Name is what chooses it, and what the framework is called.
	Name() string
	// Flags are its own settings, which no other framework has.
	Flags() []Flag
	// Framework returns what the settings make now: a plain value that tells by its
	// fields whether two nodes were told the same. dedicatedHead keeps the head's
	// node free of work.
	Framework(dedicatedHead bool) Framework
}

// Flag is a setting of a framework's own.
type Flag struct {
	Name  string // without dashes
	Shape string // stands for the value in --help
	Usage string
	// Value is what the flag sets, and holds the default: a *string, a *[]string
	// for a flag that can be repeated, a **health.Probe, or a *int of 0 to Most.
	Value any
	Most  int
	Words []string // the only ones that a *string takes; empty: any
}

// Checked is a choice whose settings can be wrong, or contradict each other.
type Checked interface {
	// Check returns an error for the user where they do, before anything is started.
	Check() error
}
