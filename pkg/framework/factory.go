package framework

// Factory is a framework that the user can choose, while its settings are parsed.
type Factory interface {
	// Name returns the value that chooses it, which is also the framework's name.
	Name() string
	// OwnFlags returns its own settings, which no other framework has.
	OwnFlags() []Flag
	// ValidateSettings returns an error for wrong or contradictory settings, before anything is
	// started.
	ValidateSettings() error
	// BuildFramework returns the framework with the present settings. It is a plain value, whose
	// fields show whether two nodes have the same settings.
	BuildFramework(Options) Framework
}

// Options are the settings that all frameworks have.
type Options struct {
	DedicatedHead bool   // the head's node gets no work
	Port          int    // of the head's service; 0: a free one; DefaultPort: the framework's usual one
	Auth          string // AuthAuto, AuthOwn or AuthOff; empty: AuthAuto
}

// DefaultPort is the value of [Options] for the usual port of a framework.
const DefaultPort = -1

// The values of --framework-auth.
const (
	AuthAuto = "auto" // clients with the token or certificate of this run
	AuthOwn  = "own"  // the user's own variables decide
	AuthOff  = "off"  // all clients
)

// HeadPort returns the port of the head's service, where usual is the framework's own.
func (o Options) HeadPort(usual int) int {
	if o.Port == DefaultPort {
		return usual
	}
	return o.Port
}

// Flag is a setting of a single framework.
type Flag struct {
	Name        string // without dashes
	Placeholder string // placeholder of the value in --help
	Usage       string
	// Target is the variable that the flag sets, with its default: a *string, a *[]string for a
	// repeatable flag, or a **health.Probe.
	Target        any
	AcceptedWords []string // the accepted values of a *string; empty: any
}
