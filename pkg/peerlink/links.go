package peerlink

import "net"

// Links has the head's ends of all peer links. If it is nil, there are no links.
type Links struct {
	Head     *Head // nil before [Links.PrepareHead]
	listener net.Listener
}

// OpenLinks opens the port for the workers' peer links. It returns the address of the port on each
// host with a non-empty name.
func OpenLinks(network Network, hosts ...string) (l *Links, where []string, err error) {
	listener, err := network.Listen()
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		_ = listener.Close()
		return nil, nil, err
	}
	for _, host := range hosts {
		if host != "" {
			where = append(where, net.JoinHostPort(host, port))
		}
	}
	return &Links{listener: listener}, where, nil
}

// PrepareHead creates the Head that accepts peer links of workers, and of guests that request
// commands. The caller must still run it.
func (l *Links) PrepareHead(cfg Config, workers HeadHandler, guests ClientHandler) {
	l.Head = NewHead(cfg, l.listener, workers)
	l.Head.AcceptClients(guests)
}

// Close sends goodbye messages on all links, and closes the port.
func (l *Links) Close() {
	if l == nil {
		return
	}
	if l.Head != nil {
		l.Head.SayGoodbye()
	}
	_ = l.listener.Close()
}
