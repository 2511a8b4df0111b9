package web

import (
	"slices"

	"sluis/views"
	"sluis/views/i18n"
)

// Integration returns the integration that the URL chooses with its parameter
// i; without one, or for an unknown one, the first. It is empty when there is
// no integration at all.
func (c *Context) Integration() string {
	list := c.knownIntegrations()
	chosen := c.QueryParam(views.IntegrationParam)
	if slices.Contains(list, chosen) {
		return chosen
	}
	if len(list) > 0 {
		return list[0]
	}
	return ""
}

// knownIntegrations asks once per request. A failure is logged and gives none:
// the page itself will fail with its own error.
func (c *Context) knownIntegrations() []string {
	if c.integrations != nil || c.server.config.Integrations == nil {
		return c.integrations
	}
	list, err := c.server.config.Integrations(c.Ctx())
	if err != nil {
		c.server.config.Log.ErrorContext(c.Ctx(), "integrations failed", "request_id", c.RequestID, "error", err)
		list = []string{}
	}
	c.integrations = list
	return list
}

// Page makes the surroundings of a page: titleID is the message id of its
// title with its placeholders in kv, nav the key of its entry in views.Nav.
func (c *Context) Page(titleID, nav string, kv ...any) views.Page {
	p := views.Page{
		Title: i18n.T(c.Ctx(), titleID, kv...),
		Nav:   nav,
		Now:   c.Now,
		Lang:  i18n.Lang(c.Ctx()),
		Path:  c.Request().URL.RequestURI(),
	}
	if c.User.ID == 0 {
		return p
	}
	p.User = views.User{Name: c.User.Name, Display: c.User.Display, Role: string(c.User.Role)}
	p.Theme, p.Keys = c.User.Theme, c.User.Keys
	p.Integration, p.Integrations = c.Integration(), c.knownIntegrations()
	p.Flashes = c.flashes()
	if c.server.config.Chrome == nil {
		return p
	}
	chrome, err := c.server.config.Chrome(c.Ctx(), c.User, p.Integration)
	if err != nil {
		c.server.config.Log.ErrorContext(c.Ctx(), "surroundings of a page failed", "request_id", c.RequestID, "error", err)
	}
	p.Counts, p.Banners = chrome.Counts, chrome.Banners
	return p
}
