// Package rolefile reads the roles of a run from a configuration file. It refuses files that no
// allocation could run, with the line of each mistake; whether the roles fit on given nodes is the
// question of [roles.MakePlan].
package rolefile
