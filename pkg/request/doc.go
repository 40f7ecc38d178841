// Package request has a run that lives run a command on its nodes, for somebody
// outside the job: the other end of what pkg/daemon does with the run
// directory's exec/. Files alone carry it; a connection to the head, where one
// can be made, makes it fast.
package request
