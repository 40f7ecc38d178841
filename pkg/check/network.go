package check

const (
	idName       = "node.name"
	nameSource   = "getaddrinfo"
	netEnvSource = "getifaddrs"
)

// IDNetEnv is the check of the variables by which a user selects the network of the job's programs.
// What it finds is a mistake in the user's settings.
const IDNetEnv = "net.env"

// Network answers the questions about the network of a node of a run whose programs communicate
// between machines.
type Network struct {
	// NameProblem returns why peers do not reach what listens at the node's own host name; empty if they
	// do. It is nil if that is not checked.
	NameProblem func() string
	// FindMistakes returns what is wrong with the user's variables on this node, and in those that may be
	// for other nodes only.
	FindMistakes func() (wrong, doubtful []string, err error)
}

func (h *Host) checkName(s *FindingBuilder) {
	problem := h.Network.NameProblem()
	if problem == "" {
		s.AddPass("the host name leads to an address of this node")
		return
	}
	s.AddWarning(ClassEnvironment, problem, "the address at which the other nodes reach it", "fix /etc/hosts or DNS: "+
		"GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME and VLLM_HOST_IP are set for the job's programs, and others may "+
		"still listen where nothing reaches them")
}

func (h *Host) checkNetEnv(s *FindingBuilder) {
	wrong, doubtful, err := h.Network.FindMistakes()
	if err != nil {
		s.addUnreadable(err)
		return
	}
	const hint = "correct or unset the variable; --check=" + IDNetEnv + "=warn starts the job nevertheless"
	for _, mistake := range wrong {
		s.AddFailure(ClassUser, mistake, "", hint)
	}
	for _, mistake := range doubtful {
		s.AddWarning(ClassUser, mistake, "", "correct or remove the variable of the role")
	}
	if len(s.Findings) == 0 {
		s.AddPass("the variables that select interfaces and the address of rank 0 fit this node")
	}
}
