package handlers

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"sluis/views"
	"sluis/web"
)

// Users is who may sign in, and as what.
type Users struct {
	Accounts *web.Accounts
}

// Routes returns the routes of the users page.
func (h Users) Routes() []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: "/users", Name: "users.show", Allow: web.Admins, Handler: h.show},
		{Method: http.MethodPost, Path: "/users", Name: "users.create", Allow: web.Admins, Handler: h.create},
		{Method: http.MethodPost, Path: "/users/:id/role", Name: "users.role", Allow: web.Admins, Handler: h.role},
		{Method: http.MethodPost, Path: "/users/:id/disabled", Name: "users.disabled", Allow: web.Admins, Handler: h.disabled},
		{Method: http.MethodPost, Path: "/users/:id/password", Name: "users.password", Allow: web.Admins, Handler: h.password},
	}
}

// errSelf refuses what would lock the person out of the page they stand on.
var errSelf = errors.New("an administrator cannot disable themselves")

// userFailures is the table from an error over users to its message. Anything
// else is an error page.
var userFailures = []struct {
	err error
	id  string
}{
	{web.ErrUserName, "users.err_name"},
	{web.ErrUserDisplay, "users.err_display"},
	{web.ErrRole, "users.err_role"},
	{web.ErrPassword, "users.err_password"},
	{web.ErrUserTaken, "users.err_taken"},
	{web.ErrUserUnknown, "users.err_unknown"},
	{web.ErrLastAdmin, "users.err_last_admin"},
	{errSelf, "users.err_self"},
}

func (h Users) show(c *web.Context) error {
	return h.page(c, http.StatusOK, views.NewUserForm{}, "")
}

func (h Users) create(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	u, err := h.Accounts.Create(c.Ctx(), c.User, web.NewUser{
		Name: form.Get("name"), Display: form.Get("display"),
		Role: web.Role(form.Get("role")), Password: form.Get("password"),
	})
	if err != nil {
		typed := views.NewUserForm{Name: form.Get("name"), Display: form.Get("display"), Role: form.Get("role")}
		return h.failed(c, err, typed)
	}
	return h.done(c, u, "users.created")
}

func (h Users) role(c *web.Context) error {
	return h.change(c, func(id int64, form url.Values) (web.User, string, error) {
		u, err := h.Accounts.SetRole(c.Ctx(), c.User, id, web.Role(form.Get("role")))
		return u, "users.role_set", err
	})
}

func (h Users) disabled(c *web.Context) error {
	return h.change(c, func(id int64, form url.Values) (web.User, string, error) {
		if form.Get("disabled") != "yes" {
			u, err := h.Accounts.SetDisabled(c.Ctx(), c.User, id, false)
			return u, "users.was_enabled", err
		}
		if id == c.User.ID {
			return web.User{}, "", errSelf
		}
		u, err := h.Accounts.SetDisabled(c.Ctx(), c.User, id, true)
		return u, "users.was_disabled", err
	})
}

func (h Users) password(c *web.Context) error {
	return h.change(c, func(id int64, form url.Values) (web.User, string, error) {
		u, err := h.Accounts.SetPassword(c.Ctx(), c.User, id, form.Get("password"))
		return u, "users.password_set", err
	})
}

// change runs one change of the user that the path names and says what came of
// it.
func (h Users) change(c *web.Context, f func(id int64, form url.Values) (web.User, string, error)) error {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		return web.NotFound(err)
	}
	form, err := c.Form()
	if err != nil {
		return err
	}
	u, message, err := f(id, form)
	if err != nil {
		return h.failed(c, err, views.NewUserForm{})
	}
	return h.done(c, u, message)
}

func (h Users) done(c *web.Context, u web.User, message string) error {
	err := c.Flash(views.Flash{Tone: views.ToneOK, ID: message, Args: []string{"Name", u.Name}})
	if err != nil {
		return err
	}
	return c.Redirect("/users")
}

func (h Users) failed(c *web.Context, err error, typed views.NewUserForm) error {
	for _, f := range userFailures {
		if errors.Is(err, f.err) {
			return h.page(c, http.StatusUnprocessableEntity, typed, f.id)
		}
	}
	return err
}

func (h Users) page(c *web.Context, status int, typed views.NewUserForm, failure string) error {
	users, err := h.Accounts.List(c.Ctx())
	if err != nil {
		return err
	}
	p := views.UsersPage{Page: c.Page("users.title", "users"), New: typed, Failure: failure}
	for _, r := range web.Roles {
		p.Roles = append(p.Roles, string(r))
	}
	for _, u := range users {
		p.Users = append(p.Users, views.UserRow{
			ID: u.ID, Name: u.Name, Display: u.Display, Role: string(u.Role),
			Disabled: u.Disabled, Self: u.ID == c.User.ID,
		})
	}
	return c.Render(status, views.Users(p))
}
