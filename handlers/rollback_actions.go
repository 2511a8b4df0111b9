package handlers

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/web"
)

// planCommand is what every command about a plan carries.
type planCommand struct {
	id      int64
	version int64
	form    url.Values
}

func readPlanCommand(c *web.Context) (planCommand, error) {
	var cmd planCommand
	var err error
	if cmd.id, err = positive(c.Param("id")); err != nil {
		return cmd, err
	}
	if cmd.form, err = c.Form(); err != nil {
		return cmd, err
	}
	cmd.version, err = number(cmd.form.Get("version"))
	return cmd, err
}

func (cmd planCommand) row() (int, error) {
	row, err := strconv.Atoi(cmd.form.Get("row"))
	if err != nil || row < 1 {
		return 0, &web.Error{Status: http.StatusBadRequest, MessageID: "error.bad_request", Err: fmt.Errorf("row %q", cmd.form.Get("row"))}
	}
	return row, nil
}

// approve carries the one click: bound to the version and hash that the page
// showed. A second click of the same person shows the rollback under way.
func (r recovery) approve(c *web.Context) error {
	cmd, err := readPlanCommand(c)
	if err != nil {
		return err
	}
	var hash [32]byte
	if text, err := hex.DecodeString(cmd.form.Get("hash")); err != nil || copy(hash[:], text) != len(hash) {
		return &web.Error{Status: http.StatusBadRequest, MessageID: "error.bad_request", Err: fmt.Errorf("hash %q", cmd.form.Get("hash"))}
	}
	rb, err := r.snapshots.Approve(c.Ctx(), person(c), cmd.id, cmd.version, hash)
	var decided *gate.DecidedError
	if errors.As(err, &decided) && decided.By == c.User.Name {
		if rb, err = r.snapshots.Rollback(c.Ctx(), cmd.id); err != nil {
			return err
		}
		return c.Redirect(link(rb.Integration, rollbackPath(cmd.id)))
	}
	if err != nil {
		return r.planRefused(c, cmd, err)
	}
	return r.done(c, rb, "rollback.flash.approved")
}

// planRefused shows the plan as it is now and says why nothing was done.
func (r recovery) planRefused(c *web.Context, cmd planCommand, err error) error {
	v := planView{note: strings.TrimSpace(cmd.form.Get("note"))}
	var moved *snapshots.MovedError
	var decided *gate.DecidedError
	switch {
	case errors.As(err, &moved):
		v.moved = moved.Rows
	case errors.As(err, &decided):
		v.conflict = lostPlan(c, decided)
	case errors.Is(err, gate.ErrStale):
		v.conflict = c.T("desk.stale")
	default:
		return err
	}
	return r.rollbackPage(c, http.StatusConflict, cmd.id, v)
}

// lostPlan names who approved a plan before, and when.
func lostPlan(c *web.Context, e *gate.DecidedError) string {
	return lostRace(c.Ctx(), &gate.DecidedError{What: e.What, State: c.T("rollback.state." + e.State), By: e.By, At: e.At})
}

// done leads to the page of a rollback with one notice.
func (r recovery) done(c *web.Context, rb snapshots.Rollback, message string) error {
	if err := c.Flash(views.Flash{Tone: views.ToneOK, ID: message, Args: []string{"Name", rollbackName(rb.ID)}}); err != nil {
		return err
	}
	return c.Redirect(link(rb.Integration, rollbackPath(rb.ID)))
}

// choice keeps or restores one row that somebody else changed.
func (r recovery) choice(c *web.Context) error {
	cmd, err := readPlanCommand(c)
	if err != nil {
		return err
	}
	row, err := cmd.row()
	if err != nil {
		return err
	}
	rb, err := r.snapshots.SetChoice(c.Ctx(), person(c), cmd.id, row, cmd.form.Get("choice"), cmd.version)
	if err != nil {
		return r.planRefused(c, cmd, err)
	}
	return c.Redirect(link(rb.Integration, rollbackPath(cmd.id)) + "#row-" + strconv.Itoa(row))
}

func (r recovery) cancel(c *web.Context) error {
	cmd, err := readPlanCommand(c)
	if err != nil {
		return err
	}
	rb, err := r.snapshots.Cancel(c.Ctx(), person(c), cmd.id, cmd.version)
	if err != nil {
		return r.planRefused(c, cmd, err)
	}
	return r.done(c, rb, "rollback.flash.cancelled")
}

func (r recovery) resume(c *web.Context) error {
	cmd, err := readPlanCommand(c)
	if err != nil {
		return err
	}
	rb, err := r.snapshots.Resume(c.Ctx(), person(c), cmd.id, cmd.version)
	if err != nil {
		return r.planRefused(c, cmd, err)
	}
	return r.done(c, rb, "rollback.flash.resumed")
}

// skip leaves a failed row undone, for the reason in the note.
func (r recovery) skip(c *web.Context) error {
	cmd, err := readPlanCommand(c)
	if err != nil {
		return err
	}
	row, err := cmd.row()
	if err != nil {
		return err
	}
	note := strings.TrimSpace(cmd.form.Get("note"))
	if note == "" {
		return r.rollbackPage(c, http.StatusUnprocessableEntity, cmd.id, planView{failure: c.T("item.note_required")})
	}
	rb, err := r.snapshots.SkipFailed(c.Ctx(), person(c), cmd.id, row, cmd.version, note)
	if errors.Is(err, gate.ErrMalformed) {
		return r.rollbackPage(c, http.StatusUnprocessableEntity, cmd.id, planView{failure: c.T("item.refused"), note: note})
	}
	if err != nil {
		return r.planRefused(c, cmd, err)
	}
	return r.done(c, rb, "rollback.flash.resumed")
}

// replan makes a fresh plan of the same inputs, with the same note.
func (r recovery) replan(c *web.Context) error {
	cmd, err := readPlanCommand(c)
	if err != nil {
		return err
	}
	rb, err := r.snapshots.Replan(c.Ctx(), person(c), cmd.id)
	if err != nil {
		return r.planRefused(c, cmd, err)
	}
	return r.done(c, rb, "rollback.flash.replanned")
}
