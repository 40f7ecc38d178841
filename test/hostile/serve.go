package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// answer is what Serve says of each line of knobs that it reads.
type answer struct {
	Error string `json:"error,omitempty"` // why they are not in force
	Taken int    `json:"taken"`           // calls that are taken and not answered
}

// Serve mounts the folder from at the folder at, with those knobs, and serves
// the mount until in ends; then it takes the mount away, whoever uses it. It
// says so on a line of out when the mount is there. Each line of in is to be
// Knobs as JSON, which take the place of those before; a line of out says that
// they are in force.
//
// The process must not use the mount, and is to end when Serve has returned:
// calls that are under way are left behind.
func Serve(from, at string, knobs Knobs, in io.Reader, out io.Writer) error {
	if err := knobs.check(); err != nil {
		return err
	}
	unix.Umask(0) // who makes a file has applied their own
	s := &server{panel: newPanel(Knobs{})}
	fs, err := newFileSystem(from, s.panel)
	if err != nil {
		return err
	}
	if s.device, err = mount(at, fs); err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- s.device.serve() }()
	go func() { ended <- s.obey(knobs, json.NewDecoder(in), json.NewEncoder(out)) }()
	err = <-ended
	unmounted := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(unmounted, unix.EINVAL) {
		unmounted = nil // somebody has taken it away
	}
	return errors.Join(err, unmounted)
}

type server struct {
	panel  *panel
	device *device
}

// obey turns the knobs as it is told, until there is nobody to tell.
func (s *server) obey(knobs Knobs, in *json.Decoder, out *json.Encoder) error {
	for {
		said := answer{}
		if err := knobs.check(); err != nil {
			said.Error = err.Error()
		} else {
			s.turn(knobs)
		}
		said.Taken = s.device.unanswered()
		if err := out.Encode(said); err != nil {
			return fmt.Errorf("cannot answer: %v", err)
		}
		knobs = Knobs{}
		switch err := in.Decode(&knobs); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("cannot read knobs: %v", err)
		}
	}
}

// turn has the knobs in force when it returns.
func (s *server) turn(knobs Knobs) {
	s.panel.set(knobs)
	if knobs.Unread {
		s.device.pause()
	} else {
		s.device.resume()
	}
}
