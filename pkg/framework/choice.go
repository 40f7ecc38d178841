package framework

// Choice is a framework that the user can choose, while its settings are parsed.
type Choice interface {
	// Name returns the value that chooses it, which is also the framework's name.
	Name() string
	// Flags returns its own settings, which no other framework has.
	Flags() []Flag
	// Framework returns the framework with the present settings. It is a plain value, whose fields
	// show whether two nodes have the same settings. With dedicatedHead the head's node gets no work.
	Framework(dedicatedHead bool) Framework
}

// Flag is a setting of a single framework.
type Flag struct {
	Name  string // without dashes
	Shape string // placeholder of the value in --help
	Usage string
	// Value is the variable that the flag sets, with its default: a *string, a *[]string for a
	// repeatable flag, a **health.Probe, or a *int from 0 to Most.
	Value any
	Most  int
	Words []string // the accepted values of a *string; empty: any
}

// Checked is a choice whose settings can be wrong or contradictory.
type Checked interface {
	// Check returns an error for wrong settings, before anything is started.
	Check() error
}
